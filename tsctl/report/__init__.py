"""Pages as files of HTML: of an archive for `tsctl report`, of the fleet for `tsctl status`."""
