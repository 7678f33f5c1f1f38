"""Adoption: a catalogue adds the messages of recovered segments."""
from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.segment.recovery cimport RecoveredSegment
from pyjs.store.file.segment_maps cimport SegmentMaps

# Add the segment and its entries to the catalogue; return the erased messages.
cdef list adopt_segment(Catalogue catalogue, SegmentMaps maps, RecoveredSegment found)
