"""braid from Python, by its C interfaces."""
