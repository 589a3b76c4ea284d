"""Images: data sets, methods, and the cells and tables of the experiment on them."""
