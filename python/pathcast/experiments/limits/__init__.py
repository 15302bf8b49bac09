"""How often Pathcast names what limits a flow: flows whose limit is known, `pathcast evaluate limits`."""
