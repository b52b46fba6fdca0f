"""Reports: how a page, a figure and a number of ours look, whoever makes them."""
