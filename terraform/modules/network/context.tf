variable "context" {
  description = "Where it is: the prefix of every name, the account, the region and the partition."
  type = object({
    name       = string
    account_id = string
    region     = string
    partition  = optional(string, "aws")
  })

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,28}[a-z0-9]$", var.context.name))
    error_message = "context.name is the prefix of every name: set 3 to 30 small letters, digits and hyphens, such as tailrace-dev."
  }
  validation {
    condition     = can(regex("^[0-9]{12}$", var.context.account_id))
    error_message = "context.account_id: set the 12 digits of the AWS account."
  }
}
