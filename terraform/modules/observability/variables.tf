variable "kms_key_arn" {
  description = "ARN of the key that logs and alarms are encrypted with."
  type        = string
}

variable "log_days" {
  description = "Days for which the drivers' logs are kept: a number that CloudWatch knows."
  type        = number
  default     = 365

  validation {
    condition     = contains([1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653], var.log_days)
    error_message = "log_days: set a number of days that CloudWatch knows, such as 30, 90 or 365."
  }
}

variable "streams" {
  description = "Streams to watch, by the name of the log that each reads. An alarm is off where its value is 0."
  type = map(object({
    # How far the watermark may be behind, in seconds; 0 for records of another time.
    lag_seconds = optional(number, 900)
    # How long there may be no epoch, in minutes; 0 for a source that is quiet for hours. Epochs come with records.
    silent_minutes = optional(number, 15)
  }))
  default = {}

  validation {
    condition     = alltrue([for name in keys(var.streams) : can(regex("^[a-z][a-z0-9_]*$", name))])
    error_message = "streams: a key is the name of a log as its definition has it, such as flights."
  }
  validation {
    condition     = alltrue([for one in values(var.streams) : one.lag_seconds >= 0])
    error_message = "streams: lag_seconds is a number above 0, or 0 for no such alarm."
  }
  validation {
    condition     = alltrue([for one in values(var.streams) : one.silent_minutes == 0 || (one.silent_minutes >= 5 && one.silent_minutes <= 1440)])
    error_message = "streams: silent_minutes is 5 to 1440, or 0 for no such alarm."
  }
}

variable "emails" {
  description = "Addresses that alarms and budgets are sent to; each has to confirm."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for one in var.emails : can(regex("^[^@ ]+@[^@ ]+\\.[^@ ]+$", one))])
    error_message = "emails: set addresses such as on-call@example.com."
  }
}

variable "applications" {
  description = "Ids of the EMR Serverless applications, for the dashboard."
  type = object({
    stream   = string
    backfill = string
  })
}

variable "monthly_budget" {
  description = "US dollars a month that are planned; told at 80 % spent and when the forecast passes it. null: no budget."
  type        = number
  default     = null

  validation {
    condition     = var.monthly_budget == null || try(var.monthly_budget > 0, false)
    error_message = "monthly_budget: set an amount above 0, or null."
  }
}

variable "budget_tag" {
  description = "Tag, as KEY$VALUE, whose costs the budget counts. It has to be activated as a cost allocation tag."
  type        = string
  default     = null
}
