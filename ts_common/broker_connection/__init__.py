"""One raw connection to a broker, and the requests that several rooms send over it."""
