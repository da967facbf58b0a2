"""Parts of `tsctl consume`, without a broker."""
