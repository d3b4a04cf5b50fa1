"""What plans cost: the constants, the estimates of rows and bytes, and the candidates side by side."""
