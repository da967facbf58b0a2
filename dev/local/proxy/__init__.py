"""Proxies that inject the faults of a test between real parts: HTTP faults before S3, cuts of TCP links.

They exist because the tests need all of this at once: rules by S3 key, bytes and the Host header unchanged (S3's
signature covers it), a response that is lost after the server processed the request, and a request that arrives after
its client gave up.
"""
