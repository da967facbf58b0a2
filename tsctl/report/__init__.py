"""The HTML page of `tsctl report`."""
