"""Tables made of archived topics: each record once, as Iceberg tables or plain files.

`claims` decides what a table takes next, `work` writes files of it, `iceberg` commits them.
"""
