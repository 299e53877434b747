"""Self-contained HTML: pages that open from disk, with their script, style and data inside and no network."""
