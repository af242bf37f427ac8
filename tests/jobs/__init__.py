"""Jobs as units of admission: their book, their webhook, and all of it on a real control plane."""
