"""Requests recorded from six clients, sent to a broker and to an endpoint over its archive; replies are compared."""
