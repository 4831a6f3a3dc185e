variable "project" {
  description = "The project: the first part of every name, and a tag."
  type        = string
  default     = "shop"
}

variable "environment" {
  description = "The environment: the second part of every name, and a tag."
  type        = string
  default     = "dev"
}

variable "region" {
  description = "The AWS region of everything."
  type        = string
}

variable "release" {
  description = "Prefix of the artifacts: one for each release lets one go back to the one before."
  type        = string
  default     = "shop/1"
}

variable "image_uri" {
  description = "The project's image in ECR, made from EMR's base image, with tailrace and the jars; null: the bundle has both."
  type        = string
  default     = null
}

variable "streams" {
  description = "Streams to watch, by the name of the log that each reads."
  type        = map(object({ lag_seconds = optional(number, 900), silent_minutes = optional(number, 15) }))
  default     = {}
}

variable "landing" {
  description = "Where files land that streams read: by bucket name, the prefix in it."
  type        = map(string)
  default     = {}
}

variable "kafka_bootstrap" {
  description = "Brokers of a Kafka that is there already, HOST:PORT,HOST:PORT; null: none."
  type        = string
  default     = null
}

variable "alarm_emails" {
  description = "Addresses that alarms are sent to."
  type        = list(string)
  default     = []
}
