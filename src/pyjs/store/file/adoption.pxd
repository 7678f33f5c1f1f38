"""Segments that were read back, taken over by a catalogue."""
from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.segment.recovery cimport RecoveredSegment
from pyjs.store.file.segment_maps cimport SegmentMaps

# Makes it the last segment of the catalogue, which takes its entries; returns the messages that are overwritten.
cdef list adopt_segment(Catalogue catalogue, SegmentMaps maps, RecoveredSegment found)
