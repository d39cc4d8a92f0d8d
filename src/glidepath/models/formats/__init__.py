"""A transcript in the formats of four endpoints: written for requests, and read back into messages."""
