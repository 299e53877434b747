"""Systems and models that ship with the program, as TOML."""
