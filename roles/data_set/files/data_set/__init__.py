"""Prepares and checks one host's data sets. Python 3.8 or later, nothing but its standard library."""
