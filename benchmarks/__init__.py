"""Measurements of our broker and its peers, side by side, and the demonstration. Not part of the installed package."""
