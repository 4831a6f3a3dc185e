"""The basics that every part of a definition is written with: instants, types, values, names, terms and conditions."""
