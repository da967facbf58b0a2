"""Proxies that break connections between real parts, as a test tells them: HTTP faults before S3, cuts on TCP links."""
