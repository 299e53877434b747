"""What things cost: abstract or modelled costs, systems and models, strict TOML."""
