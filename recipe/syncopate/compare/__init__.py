"""
From the folders of trainings to one table.

:mod:`~syncopate.compare.measurement` reads one training, :mod:`~syncopate.compare.table` puts the numbers of many side
by side, :mod:`~syncopate.compare.render` shows them. Numbers and presentation are apart: a renderer reads no file.
"""
