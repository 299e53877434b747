"""Pictures: one data layer (`drawing`), and static figures drawn from it with matplotlib. Nothing here prints."""
