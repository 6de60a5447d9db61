package build

import _ "embed" // for the licences

// Licenses lists the libraries in this binary, with the texts of their licences. A test writes the file and compares it.
//
//go:embed licenses.txt
var Licenses string
