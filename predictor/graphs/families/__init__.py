"""One module a family of networks; each registers its builders under the names the catalog uses."""
