"""`gpuhook ps`: which container and which process uses, or may use, which GPU. Nothing is changed or opened."""
