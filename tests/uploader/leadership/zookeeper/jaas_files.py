"""A broker's JAAS file."""

JAAS = """
Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="hush"; };
Kerberos { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true
           keyTab="/etc/kafka.keytab" principal="kafka/b1@R"; };
Odd { com.example.Module required; };
"""
