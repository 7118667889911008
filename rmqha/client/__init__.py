"""Producer and Consumer, for trio and for plain synchronous code."""
