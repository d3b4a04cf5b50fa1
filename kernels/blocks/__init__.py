"""Tables in memory: columns in narrow encodings, cut into blocks with zone maps (Quickstep, sections 2.3 and 3.5)."""
