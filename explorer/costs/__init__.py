"""From a transformer's architecture and a cluster to times and bytes of every stage."""
