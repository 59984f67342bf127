"""Classes: processes of labels, and the search among them."""
