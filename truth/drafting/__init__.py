"""What drafts in the matrix: models and heads of random weights, and proposers that know what will be said."""
