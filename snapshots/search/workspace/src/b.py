x = 1
def two(): pass
