"""One raw connection to a broker, for requests that librdkafka's clients do not have."""
