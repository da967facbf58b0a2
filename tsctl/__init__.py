"""`tsctl`, the tool for the store's side: what an archive holds, what is missing, and the records themselves."""
