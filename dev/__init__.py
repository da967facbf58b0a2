"""What a checkout needs and a user never installs: servers, oracle, demo, benchmarks, releases, checks."""
