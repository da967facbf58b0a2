"""Values of Apache Thrift, by an IDL of the user."""
