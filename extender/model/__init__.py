"""Values that every layer shares: names, amounts, specs, facts, acts and answers. No behaviour of its own."""
