package output

// Colours is the palette of a terminal.
var Colours = Palette{on: true}
