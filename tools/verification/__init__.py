"""Is a candidate right? Inputs, references, the numerical rule, hidden shapes, audits."""
