"""Linear programs solved by torch alone, dense and on the device where their data are."""
