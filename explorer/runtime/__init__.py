"""Running schedules for real, through PyTorch's own runtime; the only package that imports torch."""
