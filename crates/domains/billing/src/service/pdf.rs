//! A statement as a PDF.
