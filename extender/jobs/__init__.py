"""Jobs as units of admission: their book beside the books of pods. Pure, like them."""
