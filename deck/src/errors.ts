// What a server refuses, or that it does not answer.

export class ApiError extends Error {
  constructor(readonly status: number, readonly code: string, message: string, readonly retryAfter: number | null = null) {
    super(message);
  }
}
