"""The basic modules that all parts of a definition use: instants, types, values, names, expressions and conditions."""
