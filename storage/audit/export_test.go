package audit

// OfClosed is ofClosed.
var OfClosed = ofClosed
