"""What people and programs read: rich renderables and plain JSON values. Nothing here prints."""
