/** Small things that every part needs. */

export function requireText(value, field) {
  if (typeof value !== 'string' || value === '') {
    throw new Error(`${field} must be a string that is not empty`)
  }
  return value
}

export function messageOf(error) {
  return error instanceof Error ? error.message : String(error)
}
