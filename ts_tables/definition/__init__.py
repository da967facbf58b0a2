"""What a user writes about tables: one YAML file for a cluster, validated as a whole."""
